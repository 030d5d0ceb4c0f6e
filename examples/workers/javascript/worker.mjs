// A worker: serves a tool on the bus, as docs/reference/wire.md says. Its tool only reads: one that has
// effects is claimed first.  npm install && NATS=nats://127.0.0.1:4222 KEYS=.toolpost/keys node worker.mjs
import { createHash, randomBytes, randomUUID } from "node:crypto";
import { connect } from "nats";
import { run, spec } from "./greet.mjs";
import { Inspector, Refused, trusted } from "./ticket.mjs";

const { NATS = "nats://127.0.0.1:4222", PREFIX = "toolpost", KEYS = ".toolpost/keys", EVERY = 2, DRAIN = 30 } = process.env;
const worker = randomBytes(8).toString("hex"), source = `worker-${worker}`, every = +EVERY, tool = spec.name;
const digest = "sha256:" + createHash("sha256").update(JSON.stringify(spec)).digest("hex");
const inspector = new Inspector(() => trusted(KEYS)), calls = new Map(), BROKEN = new Refused("The worker failed.", "INTERNAL_ERROR");
const bus = await connect({ servers: NATS, name: source, maxReconnectAttempts: -1, reconnectTimeWait: 250 });
const say = (to, type, payload, correlationId = null) =>
  bus.publish(to, JSON.stringify({ id: randomUUID(), timestamp: new Date().toISOString(), source, type, correlationId, payload }));
let leaving = false;
const here = (type) => leaving || say(`${PREFIX}.workers`, type, { worker, offers: digest, tools: 1, every });
const listen = (subject, heard, queue) => bus.subscribe(`${PREFIX}.${subject}`, { queue, callback: (_, message) => heard(message) });

async function serve({ headers, data, reply }, call) {
  let request, result;
  const beat = setInterval(() => say(reply, "tool.alive", null, request?.callId), 500);
  try {
    call.nonce = inspector.read(headers?.get("Toolpost-Ticket"), { tool, spec: digest, body: data, reply }).jti;
    request = JSON.parse(Buffer.from(data)).payload;
    if (request?.tool !== tool) throw new Refused("The request names another tool.", "VALIDATION_ERROR", "fix_args");
    const progress = (how) => request.progress && say(reply, "tool.progress", how, request.callId);
    setTimeout(() => call.abort(new Refused("It took too long.", "TIMEOUT", "other_tool", true)), request.timeout * 1000).unref();
    result = { output: await run(request.arguments, progress, call.signal) };
  } catch (fault) {
    result = { error: (call.signal.reason ?? fault).failure ?? BROKEN.failure };
  }
  clearInterval(beat);
  if (call.signal.reason !== "cancelled") say(reply, "tool.response", result, request?.callId);
}

const requests = listen(`tool.${tool}.request`, (message) => {
  const call = new AbortController();
  if (message.reply) calls.set(call, serve(message, call).finally(() => calls.delete(call)));
}, "workers");
listen("cancel.*", ({ subject }) => calls.forEach((_, call) => subject.endsWith(`.${call.nonce}`) && call.abort("cancelled")));
listen("roll-call", () => here("worker.here"));
const page = { offers: digest, tools: { [tool]: { spec, digest, most: 100 } }, next: null };
listen(`worker.${worker}.specs`, ({ reply }) => say(reply, "worker.specs", page));
here("worker.here");
const announcing = setInterval(here, every * 1000, "worker.here");
await bus.flush();
console.log(JSON.stringify({ worker, tools: [tool], servers: [NATS] }));

for (const signal of ["SIGTERM", "SIGINT"]) process.once(signal, async () => {
  clearInterval(announcing);
  setTimeout(process.exit, DRAIN * 1000, 0).unref(); // whatever becomes of the bus
  here("worker.gone");
  leaving = true; // a roll-call would bring it back
  await requests.drain(); // what was delivered already is run
  await Promise.all(calls.values());
  await bus.drain();
});
