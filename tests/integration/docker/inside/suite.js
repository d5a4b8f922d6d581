// Runs inside a sandbox: what ordinary Node programs use. Prints `ok` at the end.
const assert = require('assert');
const child = require('child_process');
const crypto = require('crypto');
const fs = require('fs');
const http = require('http');
const net = require('net');
const os = require('os');
const path = require('path');
const { pipeline } = require('stream/promises');
const { Worker } = require('worker_threads');
const zlib = require('zlib');
const { once } = require('events');

async function files() {
  const place = fs.mkdtempSync(path.join(os.tmpdir(), 'n-'));
  const bytes = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
  await fs.promises.writeFile(`${place}/a`, bytes);
  await fs.promises.copyFile(`${place}/a`, `${place}/b`);
  await pipeline(fs.createReadStream(`${place}/b`), zlib.createGzip(), fs.createWriteStream(`${place}/c`));
  assert.deepStrictEqual(zlib.gunzipSync(fs.readFileSync(`${place}/c`)), bytes);
  fs.symlinkSync('a', `${place}/l`);
  assert.strictEqual(fs.realpathSync(`${place}/l`), `${place}/a`);
  assert.strictEqual(fs.readdirSync(place).length, 4);
  fs.cpSync(place, `${place}.copy`, { recursive: true });
  fs.rmSync(place, { recursive: true });
}

async function processes() {
  assert.strictEqual(child.execSync('echo hi | tr h H').toString(), 'Hi\n');
  const forked = child.spawn(process.execPath, ['-p', '6*7']);
  let said = '';
  forked.stdout.on('data', (data) => { said += data; });
  const [code] = await once(forked, 'close');
  assert.deepStrictEqual([code, said], [0, '42\n']);
  const slow = child.spawn('sleep', ['60']);
  slow.kill();
  assert.strictEqual((await once(slow, 'exit'))[1], 'SIGTERM');
}

async function threads() {
  const worker = new Worker("require('worker_threads').parentPort.postMessage(1)", { eval: true });
  assert.strictEqual((await once(worker, 'message'))[0], 1);
  const shared = new Int32Array(new SharedArrayBuffer(4));
  assert.strictEqual(Atomics.wait(shared, 0, 0, 5), 'timed-out');
}

async function sockets() {
  const server = http.createServer((request, response) => request.pipe(response)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const answer = await fetch(`http://127.0.0.1:${server.address().port}/`, { method: 'POST', body: 'echo' });
  assert.strictEqual(await answer.text(), 'echo');
  server.close();
  server.closeAllConnections();
  const local = net.createServer((socket) => socket.end('x')).listen(path.join(os.tmpdir(), 's'));
  await once(local, 'listening');
  const [data] = await once(net.connect(path.join(os.tmpdir(), 's')), 'data');
  assert.strictEqual(data.toString(), 'x');
  local.close();
}

async function rest() {
  assert.strictEqual(crypto.createHash('sha256').update('').digest('hex').slice(0, 8), 'e3b0c442');
  await new Promise((resolve, reject) => crypto.pbkdf2('a', 'b', 10, 32, 'sha256', (e) => (e ? reject(e) : resolve())));
  assert.ok(crypto.randomBytes(8) && os.cpus() && os.totalmem() > 0 && process.memoryUsage().rss > 0);
  await new Promise((resolve) => setTimeout(resolve, 5));
  const wasm = new WebAssembly.Module(Buffer.from([0, 97, 115, 109, 1, 0, 0, 0]));
  assert.ok(wasm);
  assert.ok(new Intl.DateTimeFormat('en').format(0));
  let sum = 0;
  for (let i = 0; i < 3e6; i += 1) sum += i % 7;
  assert.ok(sum > 0);
}

(async () => {
  for (const part of [files, processes, threads, sockets, rest]) await part();
  console.log('ok');
})();
