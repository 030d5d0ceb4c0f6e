// A client of the TypeScript SDK, in a process of its own: lists, calls, hears progress, approves,
// cancels, and prints what it has seen.
//   node client.mjs PACKAGE URL MODE
const [, , folder, url, mode] = process.argv
const { Client, StreamableHTTPClientTransport } = await import(`${folder}/dist/index.mjs`)

const client = new Client(
  { name: 'test', version: '1' },
  { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode } }
)
client.setRequestHandler('elicitation/create', async () => ({
  action: 'accept',
  content: { approve: true }
}))
await client.connect(new StreamableHTTPClientTransport(new URL(url)))

const listed = (await client.listTools()).tools.map(tool => tool.name)
const added = (await client.callTool({ name: 'add', arguments: { a: 1, b: 2 } })).structuredContent
const progress = []
await client.callTool(
  { name: 'steps', arguments: {} },
  { onprogress: report => progress.push(report.message) }
)
const sent = (await client.callTool({ name: 'send', arguments: { to: 'Ada' } })).content[0].text
const failed = (await client.callTool({ name: 'add', arguments: { a: 'x', b: 1 } })).isError
const stop = new AbortController()
const hanging = client.callTool(
  { name: 'linger', arguments: { name: `typescript ${mode}` } },
  { signal: stop.signal, onprogress: () => stop.abort() }
)
const cancelled = await hanging.then(() => false, () => true)
console.log(JSON.stringify({ listed, added, progress, sent, failed, cancelled }))
await client.close()
