/* How the page asks the server. All addresses are relative: a proxy may put the page anywhere. */

const TOKEN = "holdfast-token";

/** What the server said instead of an answer. */
export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Keep a token for as long as this tab is open. */
export function keepToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

function headers(more = {}) {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { ...more, authorization: `Bearer ${token}` } : more;
}

async function refuse(response) {
  const said = await response.json().catch(() => ({}));
  throw new Refusal(response.status, said.errors?.join("\n") ?? `${response.status} ${response.statusText}`);
}

export async function get(path, query = {}) {
  const asked = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== undefined));
  const response = await fetch(asked.size ? `${path}?${asked}` : path, { headers: headers() });
  return response.ok ? response.json() : refuse(response);
}

export async function send(method, path, body) {
  const json = { "content-type": "application/json" };
  const response = await fetch(path, {
    method,
    headers: headers(body === undefined ? {} : json),
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  return response.ok ? response.json() : refuse(response);
}

/** Ask for something that takes a while, and what became of it, until it is done. */
export async function carryOut(method, path, body, asks) {
  const { "request-id": id } = await send(method, path, body);
  for (;;) {
    const { status, operation } = await get(`${asks}/${id}`);
    if (status.id === "COMPLETED") {
      const cause = operation["failure-cause"] ?? operation.failureCause;
      if (cause) throw new Refusal(409, cause["stack-trace"]);
      return operation;
    }
    await new Promise((done) => setTimeout(done, 300));
  }
}

/** Yield the data of server-sent events; `EventSource` could not send a token. */
export async function* events(path, signal) {
  const response = await fetch(path, { headers: headers(), signal });
  if (!response.ok) await refuse(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const parts = text.split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const line = part.split("\n").find((one) => one.startsWith("data: "));
      if (line) yield JSON.parse(line.slice("data: ".length));
    }
  }
}
