// Signatures of AWS (version 4), for hosts that verify them.
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html

import { h, openDialog } from "../dom.js";

const KEPT = "halimede host keys";
const INSECURE = "Browsers sign requests only on pages of localhost or over TLS: open the console at such an address.";
const hex = (buffer) => [...new Uint8Array(buffer)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
const encoded = (text) => encodeURIComponent(text).replace(/[!'()*]/g, (one) => `%${one.charCodeAt(0).toString(16).toUpperCase()}`);
const sha256 = async (content) => hex(await crypto.subtle.digest("SHA-256", await new Blob([content]).arrayBuffer()));

async function hmac(key, text) {
  const imported = await crypto.subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return crypto.subtle.sign("HMAC", imported, new TextEncoder().encode(text));
}

/** The key that the user has given, {id, secret, region}; null for none. */
export const givenKey = () => JSON.parse(sessionStorage.getItem(KEPT) ?? "null");

/** The headers of a request: a signature if the user has given a key, none otherwise. The path's query is as it is sent. */
export async function signed(path, { method = "GET", body = "" } = {}) {
  const given = givenKey();
  if (!given) return {};
  if (!crypto.subtle) throw Object.assign(new Error(INSECURE), { status: 403 });
  const [place, query = ""] = path.split("?");
  const parameters = [...new URLSearchParams(query)].map(([name, value]) => `${encoded(name)}=${encoded(value)}`).sort().join("&");
  const time = new Date().toISOString().replace(/[-:]|\.\d+/g, "");
  const request = [method, place, parameters, `host:${location.host}`, `x-amz-date:${time}`, "", "host;x-amz-date", await sha256(body)].join("\n");
  const scope = `${time.slice(0, 8)}/${given.region}/sagemaker/aws4_request`;
  const text = ["AWS4-HMAC-SHA256", time, scope, await sha256(request)].join("\n");
  let key = new TextEncoder().encode(`AWS4${given.secret}`);
  for (const part of scope.split("/")) key = await hmac(key, part);
  const signature = hex(await hmac(key, text));
  return { "X-Amz-Date": time, Authorization: `AWS4-HMAC-SHA256 Credential=${given.id}/${scope}, SignedHeaders=host;x-amz-date, Signature=${signature}` };
}

/** Let the user give an access key. */
export function askForKeys(onChange) {
  const given = givenKey() ?? { id: "", secret: "", region: "us-east-1" };
  const id = h("input", { id: "key_id", autocomplete: "off", value: given.id });
  const secret = h("input", { id: "key_secret", type: "password", autocomplete: "off", value: given.secret });
  const region = h("input", { id: "key_region", autocomplete: "off", value: given.region });
  const save = (close) => (event) => {
    event.preventDefault();
    if (id.value) sessionStorage.setItem(KEPT, JSON.stringify({ id: id.value.trim(), secret: secret.value, region: region.value.trim() }));
    else sessionStorage.removeItem(KEPT);
    close();
    onChange();
  };
  openDialog("Access", (close) => [
    h("p", {}, "Requests are signed with this key. It is kept in this browser tab only, and the secret is never sent. Without an ID requests are not signed."),
    h("form", { onsubmit: save(close) },
      h("label", { for: "key_id" }, "Access key ID"), id,
      h("label", { for: "key_secret" }, "Secret access key"), secret,
      h("label", { for: "key_region" }, "Region"), region,
      h("div", { class: "actions" },
        h("button", { type: "button", onclick: () => close() }, "Cancel"),
        h("button", { class: "primary" }, "Use"))),
  ]);
}
