// The same call as code to copy, for one client or another.

import { h, notify, setText, show } from "../dom.js";

/**
 * A card with code for each of the named clients: `update(codes, files)`, with the text for each client, null for one
 * that cannot make the call, and the files that the code reads, [name, content]. `explain(why)` says why there is none.
 */
export function codeTabs(names) {
  let chosen = 0;
  let codes = null;
  const code = h("code", {});
  const files = h("div", { class: "files" });
  const copy = h("button", { type: "button", class: "quiet", onclick: async () => {
    await navigator.clipboard.writeText(code.textContent).then(() => notify("Copied.", "good"), () => notify("The browser does not let this page copy.", "error"));
  } }, "Copy");
  const buttons = names.map((name, i) => h("button", { type: "button", class: "quiet", "aria-pressed": String(i === 0), onclick: () => { chosen = i; draw(); } }, name));
  const node = h("section", { class: "code" },
    h("div", { class: "line" }, h("h3", {}, "The same call"), h("div", { role: "group", "aria-label": "Client" }, buttons), copy),
    h("pre", { tabindex: "0", role: "region", "aria-label": "Code of the call" }, code), files);

  function draw() {
    if (!codes) return;
    if (codes[chosen] === null) chosen = codes.findIndex((each) => each !== null);
    buttons.forEach((button, i) => {
      show(button, codes[i] !== null);
      button.setAttribute("aria-pressed", String(i === chosen));
    });
    setText(code, codes[chosen]);
  }

  function save(contents) {
    for (const link of files.querySelectorAll("a")) URL.revokeObjectURL(link.href);
    files.replaceChildren(...contents.map(([name, content]) => h("a", { download: name, href: URL.createObjectURL(new Blob([content])) }, `Save ${name}`)));
  }

  return {
    node,
    explain(why) {
      codes = null;
      setText(code, `# ${why}`);
      save([]);
    },
    update(newCodes, contents = []) {
      codes = newCodes;
      draw();
      save(contents);
    },
  };
}
