// Says how a worker in JavaScript takes each of the tickets: node check.mjs TICKET.MJS TICKETS.JSON KEYS
import { readFileSync } from "node:fs";

const [, , module, vectors, keys] = process.argv;
const { Inspector, trusted } = await import(module);
const { now, call, tickets } = JSON.parse(readFileSync(vectors));
const codes = {};
for (const { name, ticket, after, call: other } of tickets) {
  const inspector = new Inspector(() => trusted(keys), () => now);
  if (after) inspector.read(after, call);
  try {
    inspector.read(ticket, { ...call, ...other });
    codes[name] = null;
  } catch (fault) {
    codes[name] = fault.failure?.code ?? String(fault);
  }
}
console.log(JSON.stringify(codes));
