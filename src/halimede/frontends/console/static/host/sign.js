// Signatures of AWS (version 4), for hosts that verify them.
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html

import { h } from "../dom.js";

const KEPT = "halimede host keys";
const EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"; // SHA-256 of no body
const utf8 = (text) => new TextEncoder().encode(text);
const hex = (buffer) => [...new Uint8Array(buffer)].map((byte) => byte.toString(16).padStart(2, "0")).join("");

async function hmac(key, text) {
  const imported = await crypto.subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return crypto.subtle.sign("HMAC", imported, utf8(text));
}

function keys() {
  return JSON.parse(sessionStorage.getItem(KEPT) ?? "null");
}

/** The headers of a GET: a signature if the user has given keys, none otherwise. */
export async function signed(path) {
  const given = keys();
  if (!given) return {};
  const time = new Date().toISOString().replace(/[-:]|\.\d+/g, "");
  const day = time.slice(0, 8);
  const request = ["GET", path, "", `host:${location.host}`, `x-amz-date:${time}`, "", "host;x-amz-date", EMPTY].join("\n");
  const scope = `${day}/${given.region}/sagemaker/aws4_request`;
  const text = ["AWS4-HMAC-SHA256", time, scope, hex(await crypto.subtle.digest("SHA-256", utf8(request)))].join("\n");
  let key = utf8(`AWS4${given.secret}`);
  for (const part of scope.split("/")) key = await hmac(key, part);
  const signature = hex(await hmac(key, text));
  return { "X-Amz-Date": time, Authorization: `AWS4-HMAC-SHA256 Credential=${given.id}/${scope}, SignedHeaders=host;x-amz-date, Signature=${signature}` };
}

/** Let the user give an access key. */
export function askForKeys(onChange) {
  const dialog = document.getElementById("dialog");
  const given = keys() ?? { id: "", secret: "", region: "us-east-1" };
  const id = h("input", { id: "key_id", autocomplete: "off", value: given.id });
  const secret = h("input", { id: "key_secret", type: "password", autocomplete: "off", value: given.secret });
  const region = h("input", { id: "key_region", autocomplete: "off", value: given.region });
  const save = (event) => {
    event.preventDefault();
    sessionStorage.setItem(KEPT, JSON.stringify({ id: id.value, secret: secret.value, region: region.value }));
    dialog.close();
    onChange();
  };
  dialog.replaceChildren(
    h("h2", { id: "dialog_title" }, "Access"),
    h("p", {}, "Requests are signed with this key. It is kept in this browser tab only, and the secret is never sent."),
    h("form", { onsubmit: save },
      h("label", { for: "key_id" }, "Access key ID"), id,
      h("label", { for: "key_secret" }, "Secret access key"), secret,
      h("label", { for: "key_region" }, "Region"), region,
      h("div", { class: "actions" },
        h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
        h("button", { class: "primary" }, "Use"))),
  );
  dialog.onclose = null;
  dialog.showModal();
}
