// Calls of the admin API. The browser sends the session's cookie, and the header that no other site can add.
export class ApiError extends Error {
  constructor(status, document) {
    super(document?.message ?? `the server answered with status ${status}`);
    this.status = status;
    this.problems = document?.problems ?? [];
  }
}

let onSignedOut = () => {};
export function whenSignedOut(callback) {
  onSignedOut = callback;
}

export async function send(method, path, { query, body, etag, signal } = {}) {
  const chosen = Object.entries(query ?? {}).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const url = path + (chosen.length ? "?" + new URLSearchParams(chosen) : "");
  const headers = { "headgate-dashboard": "1" };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (etag) headers["if-match"] = etag;
  let answer;
  try {
    answer = await fetch(url, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal, credentials: "same-origin", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { message: "the service does not answer; it may be restarting" });
  }
  const text = await answer.text();
  let data = null;
  try {
    data = text ? JSON.parse(text) : null;
  } catch {
    data = null;
  }
  if (!answer.ok) {
    if (answer.status === 401 && path !== "/ui/session") onSignedOut();
    throw new ApiError(answer.status, data);
  }
  return { data, etag: answer.headers.get("etag"), warning: answer.headers.get("headgate-warning") };
}

export const get = async (path, query, signal) => (await send("GET", path, { query, signal })).data;
export const post = async (path, body, query) => (await send("POST", path, { body, query })).data;
export const part = encodeURIComponent;
