'use strict';
// Runs one JavaScript snippet; started ahead of time. Its program comes over descriptor 3, once.
//
// A snippet is a script with `require`, as with `node -e`. One that only parses with `await` at its top level, or only as a
// module, is run as that.
const fs = require('fs');
const vm = require('vm');
const { createRequire } = require('module');

const NAME = 'main.js';

function read() {
  const parts = [];
  const buffer = Buffer.alloc(65536);
  for (let size; (size = fs.readSync(3, buffer)) > 0;) parts.push(Buffer.from(buffer.subarray(0, size)));
  fs.closeSync(3);
  return Buffer.concat(parts).toString();
}

// Both are made when first used, which is better done now than when somebody waits.
void [process.stdout, process.stderr];
globalThis.require = createRequire('/workspace/' + NAME);
globalThis.module = { exports: {} };
globalThis.exports = globalThis.module.exports;
fs.writeSync(3, '.');

const source = read();
process.argv = [process.argv[0], '/workspace/' + NAME];
const options = {
  filename: NAME,
  importModuleDynamically: vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER ?? ((name) => import(name)),
};

function parsed(text, more) {
  try {
    return new vm.Script(text, { ...options, ...more });
  } catch (error) {
    if (error instanceof SyntaxError) return error;
    throw error;
  }
}

const script = parsed(source);
if (script instanceof vm.Script) {
  script.runInThisContext();
} else {
  const awaiting = parsed(`(async () => {\n${source}\n})()`, { lineOffset: -1 });
  if (awaiting instanceof vm.Script) {
    awaiting.runInThisContext();
  } else if (/^\s*(?:import|export)\b/m.test(source)) {
    import('data:text/javascript;base64,' + Buffer.from(source).toString('base64'));
  } else {
    throw script;
  }
}
