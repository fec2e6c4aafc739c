// Questions to the server, and what went wrong in one sentence.

const TOKEN = "tableless-token"; // of this tab only: sessionStorage forgets it when the tab is closed

/** An answer that is not the one asked for. `status` is 0 if there was none. */
export class Problem extends Error {
  constructor(sentence, status) {
    super(sentence);
    this.status = status;
  }

  /** Might the same question be answered in a moment? */
  get mayPass() {
    return this.status === 0 || this.status >= 500;
  }
}

/** GET a path; the ids in the answer are text. Throws `Problem`, or AbortError if the signal said so. */
export async function ask(path, parameters, signal) {
  return answerTo(`${path}?${new URLSearchParams(parameters)}`, { signal });
}

/** POST a body of JSON to a path. */
export async function send(path, body) {
  return answerTo(path, { method: "POST", body }, { "Content-Type": "application/json" });
}

async function answerTo(address, request, headers = {}) {
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = `Bearer ${token}`;
  let response, text;
  try {
    response = await fetch(address, { ...request, headers });
    text = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The server does not answer.", 0);
  }
  if (response.status === 401) {
    throw new Problem(token ? "The server does not accept this token." : "This server asks for a token.", 401);
  }
  if (!response.ok) throw new Problem(sentenceOf(text, response.status), response.status);
  return JSON.parse(withIdsAsText(text));
}

/** Show this token from now on. */
export function useToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

/** Ids may be any int64, and JSON.parse would round those beyond 2^53. Inside a title the quotes would be escaped. */
function withIdsAsText(json) {
  return json.replace(/"(item|id|user)": ?(-?\d+)/g, '"$1": "$2"');
}

function sentenceOf(text, status) {
  try {
    const { detail } = JSON.parse(text);
    const sentence = detail[0].toUpperCase() + detail.slice(1);
    return sentence.endsWith(".") ? sentence : `${sentence}.`;
  } catch {
    return `The server answered with the error ${status}.`; // a proxy's page, perhaps
  }
}
