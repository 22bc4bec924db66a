// Starts a relay for the user of Open OnDemand and passes the browser's requests on to it.
//
// Passenger runs this program as the user, whom Open OnDemand has authenticated, and only the user's own nginx reaches it. The relay listens
// on a Unix socket that only the user can open, and accepts its owner there without a key. It needs no package but Node.js itself.
'use strict';

const { spawn } = require('child_process');
const fs = require('fs');
const http = require('http');
const net = require('net');
const os = require('os');
const path = require('path');

// Variables for the relay, as lines of NAME=value or NAME="value": its program (RELAY_PROGRAM), the PATH to SLURM's commands,
// settings (NODEGLASS_…).
const SETTINGS = '/etc/ood/config/apps/nodeglass/env';
// Time within which the relay must listen.
const START_MS = 20_000;
// The relay's socket, in the working directory.
const SOCKET = 'relay.sock';
// Characters of the relay's last messages that are shown if it does not start.
const MESSAGE_LENGTH = 4_000;

function settings() {
  let text = '';
  try {
    text = fs.readFileSync(process.env.OOD_NODEGLASS_ENV || SETTINGS, 'utf8');
  } catch (error) {
    if (error.code !== 'ENOENT') throw error;
  }
  const lines = text.split('\n').map((line) => line.match(/^\s*([A-Za-z_][A-Za-z0-9_]*)=(.*?)\s*$/));
  const unquoted = (value) => value.replace(/^(["'])(.*)\1$/, '$2');
  return Object.fromEntries(lines.filter((match) => match !== null).map(([, name, value]) => [name, unquoted(value)]));
}

// Becomes the relay, which ends with this program, however that ends: then the pipe on descriptor 3 closes.
const TOGETHER = '(read -r _ <&3; kill $$) >/dev/null 2>&1 & exec "$0" "$@" 3<&-';

let relay = null;

// Resolves to the relay's socket, and what ends the relay, once it listens; starts a relay if none runs.
function running() {
  if (relay === null) {
    relay = start();
    relay.catch(() => { relay = null; });
  }
  return relay;
}

function start() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'nodeglass-'));
  // Connections go by the working directory: should /tmp be emptied, another user may create a folder of this name, but not be reached.
  process.chdir(folder);
  const socket = path.join(folder, 'relay.sock');
  const env = { ...process.env, ...settings() };
  const args = ['--new', '--bind', `owner:${socket}`, '--base-path', process.env.PASSENGER_BASE_URI || '/'];
  return new Promise((resolve, reject) => {
    const words = ['-c', TOGETHER, env.RELAY_PROGRAM || 'nodeglass', ...args];
    const child = spawn('/bin/sh', words, { env, stdio: ['ignore', 'ignore', 'pipe', 'pipe'] });
    const end = () => {
      child.kill();
      // Nothing recursive, and no path through the folder: it may by now be another user's, with links to the owner's files.
      for (const remove of [() => fs.unlinkSync(SOCKET), () => fs.rmdirSync(folder)]) {
        try { remove(); } catch { /* It is gone, or not ours. */ }
      }
    };
    let message = '';
    child.stderr.setEncoding('utf8').on('data', (text) => {
      process.stderr.write(text);
      message = (message + text).slice(-MESSAGE_LENGTH);
    });
    const gone = (why) => {
      relay = null;
      process.off('exit', end);
      end();
      reject(new Error(`The relay ${why}.\n${message}`));
    };
    child.on('error', (error) => gone(`cannot be started: ${error.message}`));
    child.on('exit', () => child.stdio[3].destroy());
    child.on('close', (code, signal) => gone(`ended with ${signal || `status ${code}`}`));
    process.on('exit', end);
    waitFor(SOCKET, Date.now() + START_MS, () => resolve({ socketPath: SOCKET, end }), end);
  });
}

// Calls `ready` once a program listens on a socket, and `late` if none does in time.
function waitFor(socket, deadline, ready, late) {
  const probe = net.connect(socket, () => { probe.destroy(); ready(); });
  probe.on('error', () => {
    if (Date.now() > deadline) late();
    else setTimeout(waitFor, 50, socket, deadline, ready, late);
  });
}

// Pairs of a name and a value, as Node.js lists them one after the other.
function pairs(raw) {
  return Array.from({ length: raw.length / 2 }, (_, at) => [raw[2 * at], raw[2 * at + 1]]);
}

async function forward(request, failed) {
  try {
    const { socketPath, end } = await running();
    const { method, url, rawHeaders } = request;
    const onward = http.request({ socketPath, method, path: url, headers: rawHeaders });
    return onward.on('error', (error) => {
      // Without its socket, a relay is of no use: the next request starts another one.
      if (error.syscall === 'connect') end();
      failed(error);
    });
  } catch (error) {
    failed(error);
    return null;
  }
}

const server = http.createServer(async (request, response) => {
  const failed = (error) => {
    if (response.headersSent) return response.destroy();
    response.writeHead(502, { 'Content-Type': 'text/plain; charset=utf-8', 'Cache-Control': 'no-store' });
    return response.end(error.message);
  };
  const onward = await forward(request, failed);
  if (onward === null) return;
  onward.on('response', (answer) => {
    response.writeHead(answer.statusCode, answer.statusMessage, answer.rawHeaders);
    answer.pipe(response).on('close', () => onward.destroy());
    answer.on('error', failed);
  });
  request.pipe(onward);
});

server.on('upgrade', async (request, socket, head) => {
  socket.on('error', () => socket.destroy());
  const onward = await forward(request, () => socket.destroy());
  if (onward === null) return;
  const answerHead = (answer) => {
    const lines = pairs(answer.rawHeaders).map(([name, value]) => `${name}: ${value}\r\n`);
    return `HTTP/1.1 ${answer.statusCode} ${answer.statusMessage}\r\n${lines.join('')}\r\n`;
  };
  onward.on('response', (answer) => {
    socket.write(answerHead(answer));
    answer.pipe(socket);
  });
  onward.on('upgrade', (answer, other, first) => {
    other.on('error', () => socket.destroy()).on('close', () => socket.destroy());
    socket.on('close', () => other.destroy());
    socket.write(answerHead(answer));
    socket.write(first);
    other.write(head);
    other.pipe(socket).pipe(other);
  });
  onward.end();
});

// Passenger ends an idle application by a signal; the relay ends with it.
for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.on(signal, () => process.exit(0));
// Without Passenger, anybody who reaches the port would be taken for the relay's owner.
if (typeof PhusionPassenger === 'undefined') {
  process.stderr.write('Open OnDemand starts this program by Passenger, which authenticates the user; it does not run by itself.\n');
  process.exit(1);
}
server.listen('passenger');
