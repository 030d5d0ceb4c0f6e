// The tool that the worker serves: what it is, and what it does.
import { setTimeout as sleep } from "node:timers/promises";
import { Refused } from "./ticket.mjs";

export const spec = {
  name: "greet", description: "Greet somebody, at once or slowly.", tier: 0, effects: "read", timeout: 60,
  input_schema: {
    type: "object", required: ["name"], additionalProperties: false,
    properties: { name: { type: "string" }, seconds: { type: "number", minimum: 0, maximum: 60 } },
  },
};

export async function run({ name, seconds = 0, ...more }, progress, signal) {
  if (typeof name !== "string" || !(seconds >= 0 && seconds <= 60) || Object.keys(more).length)
    throw new Refused("greet takes a name, and seconds from 0 to 60.", "VALIDATION_ERROR", "fix_args");
  for (let done = 0; done < seconds; done++) {
    progress({ done, total: seconds, message: "thinking" });
    await sleep(Math.min(1, seconds - done) * 1000, null, { signal });
  }
  return `Hello, ${name}!`;
}
