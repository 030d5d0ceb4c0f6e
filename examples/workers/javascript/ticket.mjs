// What a worker believes: docs/reference/wire.md#tickets, point by point.
import { createHash, createPublicKey, verify } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";

const LIFE = 15, SKEW = 5, MOST = 100_000;

export class Refused extends Error {
  constructor(message, code = "UNAUTHORIZED", remedy = "stop", retryable = false) {
    super(message);
    this.failure = { code, message, remedy, retryable, effects: "none" };
  }
}

/** The keys in a folder, each by the first part of the tickets that it signs. */
export function trusted(folder) {
  const files = readdirSync(folder).filter((name) => name.endsWith(".pub"));
  return new Map(files.map((name) => {
    const [, text] = readFileSync(`${folder}/${name}`, "ascii").trim().split(" ");
    const raw = Buffer.from(text, "base64url");
    const kid = createHash("sha256").update(raw).digest("hex").slice(0, 16);
    const head = Buffer.from(JSON.stringify({ alg: "EdDSA", typ: "JWT", kid })).toString("base64url");
    const key = { kty: "OKP", crv: "Ed25519", x: raw.toString("base64url") };
    return [head, createPublicKey({ key, format: "jwk" })];
  }));
}

export class Inspector {
  constructor(keys, now = () => Date.now() / 1000) {
    Object.assign(this, { keys, now, seen: new Map(), known: new Map(), asked: 0 });
  }

  #key(head) {
    if (!this.known.has(head) && this.asked < this.now() - 1) { // gateways come, and keys change
      this.known = this.keys();
      this.asked = this.now();
    }
    return this.known.get(head);
  }

  /** The claims of a ticket, if it is for this very call; each ticket once. */
  read(text, { tool, spec, body, reply }) {
    const [head, said, signature, ...more] = (text || "").split(".");
    const key = this.#key(head);
    if (!key) throw new Refused("There is no ticket of anybody who is trusted here.");
    const given = Buffer.from(signature || "", "base64url");
    if (text.length > 16_384 || more.length || given.toString("base64url") !== signature
      || !verify(null, Buffer.from(`${head}.${said}`), key, given)) throw new Refused("The ticket is not as it was signed.");
    const ticket = JSON.parse(Buffer.from(said, "base64url"));
    const { caller, iat, exp, jti } = ticket, now = this.now();
    if (!caller?.id || !jti) throw new Refused("The ticket cannot be read.");
    if (!(exp > now - SKEW && iat <= now + SKEW && exp <= iat + LIFE)) throw new Refused("The ticket is stale.");
    const digest = createHash("sha256").update(body).digest("hex");
    if (ticket.tool !== tool || ticket.reply !== reply || ticket.body !== digest) throw new Refused("The ticket is for another call.");
    if (ticket.spec !== spec) throw new Refused("The tool has changed since this call was allowed. Try again.", "UNAVAILABLE", "wait", true);
    for (const [old, ends] of this.seen) if (ends < now) this.seen.delete(old); else break;
    if (this.seen.has(jti) || this.seen.size >= MOST) throw new Refused("The ticket was used before.");
    this.seen.set(jti, exp + SKEW);
    return ticket;
  }
}
