'use strict';
// Runs one JavaScript snippet; started ahead of time. Its program comes over descriptor 3, once, and there it says that it has it and
// begins, and that it has ended well when nothing more can come from it, so that nobody waits while an engine is taken apart. (An error is printed after the
// event `exit`, so an end with another code than 0 is seen by the process's own.)
//
// A snippet is a script with `require`, as with `node -e`. One that only parses with `await` at its top level, or only as a
// module, is run as that. A module becomes a file in the workspace first: one from memory would find no package.
const fs = require('fs');
const vm = require('vm');
const { Console } = require('console');
const { createRequire } = require('module');
const { Writable } = require('stream');
const { pathToFileURL } = require('url');
require('net');
require('./preload.js');

const NAME = 'main.js';
const MODULE = '/workspace/main.mjs';

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
new vm.Script('0', { filename: NAME }).runInThisContext();
globalThis.require = createRequire('/workspace/' + NAME);
globalThis.module = { exports: {} };
globalThis.exports = globalThis.module.exports;
process.argv = [process.argv[0], '/workspace/' + NAME];

// Where Node cannot be told to, `./` is made to mean the workspace here, and not the folder of this file.
const place = pathToFileURL(process.argv[1]);
const options = {
  filename: NAME,
  importModuleDynamically: vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER
    ?? ((name) => import(/^\.{0,2}\//.test(name) ? new URL(name, place).href : name)),
};

function parsed(text, more) {
  try {
    return new vm.Script(text, { ...options, ...more });
  } catch (error) {
    if (error instanceof SyntaxError) return error;
    throw error;
  }
}

function run(source) {
  const script = parsed(source);
  if (script instanceof vm.Script) {
    script.runInThisContext();
    return;
  }
  const awaiting = parsed(`(async () => {\n${source}\n})()`, { lineOffset: -1 });
  if (awaiting instanceof vm.Script) {
    awaiting.runInThisContext();
  } else if (/^\s*(?:import|export)\b/m.test(source)) {
    fs.writeFileSync(MODULE, source);
    import(MODULE);
  } else {
    throw script;
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
