'use strict';
// Runs one JavaScript snippet; started ahead of time. Its program comes over descriptor 3, once, and there it says that it has it and
// begins, and that it has ended well when nothing more can come from it, so that nobody waits while an engine is taken apart. (An error is printed after the
// event `exit`, so an end with another code than 0 is seen by the process's own.)
//
// A snippet is a file, as after `node main.js`, and the main module. One that only parses with `await` at its top level, or only as a
// module, is run as that, with `require` all the same. It is begun by the engine's own turn, so that no trace names this file.
const fs = require('fs');
const vm = require('vm');
const { Console } = require('console');
const Module = require('module');
const { Writable } = require('stream');
const { pathToFileURL } = require('url');
require('net');
require('./preload.js');

const FOLDER = '/workspace';
const SCRIPT = `${FOLDER}/main.js`;
const MODULE = `${FOLDER}/main.mjs`;
const WORDS = ['exports', 'require', 'module', '__filename', '__dirname'];

function read() {
  const parts = [];
  const buffer = Buffer.alloc(65536);
  for (let size; (size = fs.readSync(3, buffer)) > 0;) parts.push(Buffer.from(buffer.subarray(0, size)));
  fs.writeSync(3, '!');
  return Buffer.concat(parts).toString();
}

// What is made or compiled when it is first used is used now, while nobody waits.
// A pipe that is full makes a program wait, as it does for one that never touches these streams: else `fs.writeSync` fails, and
// what is printed in an endless loop piles up in the engine.
for (const stream of [process.stdout, process.stderr]) stream._handle?.setBlocking?.(true);
const nowhere = new Writable({ write: (_data, _encoding, done) => done() });
new Console(nowhere).log('%s', 1, { a: [1.5, 'x'] }, new Error('x').stack);
vm.compileFunction('0', WORDS, { filename: SCRIPT });
process.argv = [process.argv[0], SCRIPT];

// Where Node cannot be told to, `./` is made to mean the workspace here, and not the folder of this file.
const place = pathToFileURL(SCRIPT);
const options = {
  filename: SCRIPT,
  importModuleDynamically: vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER
    ?? ((name) => import(/^\.{0,2}\//.test(name) ? new URL(name, place).href : name)),
};

function parsed(text, more) {
  try {
    return vm.compileFunction(text, WORDS, { ...options, ...more });
  } catch (error) {
    if (error instanceof SyntaxError) return error;
    throw error;
  }
}

// What a script finds in its scope, for one that Node does not load by itself.
function scope(file) {
  const main = new Module(file, null);
  Object.assign(main, { id: '.', filename: file, paths: Module._nodeModulePaths(FOLDER) });
  process.mainModule = Module._cache[file] = main;
  return [main.exports, Module.createRequire(file), main, file, FOLDER];
}

function load(source) {
  fs.writeFileSync(SCRIPT, source);
  setImmediate(Module._load, SCRIPT, null, true);
}

function run(source) {
  const script = parsed(source);
  if (typeof script === 'function') {
    load(source);
    return;
  }
  const text = source.replace(/^#!.*/, '');
  const awaiting = parsed(`return (async () => {\n${text}\n})()`, { lineOffset: -1 });
  if (typeof awaiting === 'function') {
    fs.writeFileSync(SCRIPT, source);
    setImmediate(awaiting.bind({}), ...scope(SCRIPT));
  } else if (/^\s*(?:import|export)\b/m.test(source)) {
    fs.writeFileSync(MODULE, source);
    scope(MODULE).forEach((value, at) => { globalThis[WORDS[at]] = value; });
    import(MODULE);
  } else {
    load(source); // which says what is wrong with it
  }
}

function sayTheEnd() {
  const { writeSync } = fs;
  const { emit } = process;
  process.emit = function emitted(name, ...rest) {
    const heard = Reflect.apply(emit, this, [name, ...rest]);
    if (name === 'exit' && (process.exitCode ?? rest[0]) === 0) writeSync(3, '\0');
    return heard;
  };
}

// From within the event loop, whose first turn costs milliseconds.
setImmediate(() => setImmediate(() => {
  sayTheEnd();
  fs.writeSync(3, '.');
  run(read());
}));
