// The Inspector's command line, run for many calls in one process.
//   node inspect.mjs CLI URL ERA CALLS   where CALLS is [[tool, arguments], …] as JSON
// One line of JSON: what tools/list --strict said, and each call's result; "said" is stderr.
import { readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const [cli, url, era, calls] = process.argv.slice(2);
const { runCli } = await import(cli);
const file = join(tmpdir(), `inspected-${process.pid}.json`);

async function inspected(...words) {
  let said = "";
  const write = process.stderr.write;
  process.stderr.write = (text, ...rest) => {
    said += text;
    rest.findLast((one) => typeof one === "function")?.();
    return true;
  };
  const own = ["--transport", "http", "--protocol-era", era, "--output", file];
  try {
    await runCli(["node", "cli", url, ...own, ...words]);
    return { result: JSON.parse(readFileSync(file)), said };
  } catch (fault) {
    return { fault: String(fault.message ?? fault), code: fault.exitCode, said };
  } finally {
    process.stderr.write = write;
    rmSync(file, { force: true });
  }
}

const listed = await inspected("--method", "tools/list", "--strict");
const called = {};
for (const [name, given] of JSON.parse(calls)) {
  const words = ["--tool-name", name, "--tool-args-json", JSON.stringify(given)];
  called[name] = await inspected("--method", "tools/call", ...words);
}
console.log(JSON.stringify({ listed, called }));
process.exit(0);
