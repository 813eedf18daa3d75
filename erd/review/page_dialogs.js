// What is asked for: a name, a class, a file.
"use strict";

function askName(then) {
  const dialog = $("ask-name"), input = $("reviewer");
  input.value = page.reviewer;
  dialog.querySelector("form").onsubmit = (event) => {
    event.preventDefault();
    const name = input.value.trim().replace(/\s+/g, " ");
    if (!name) return;
    page.reviewer = name;
    localStorage.setItem("erd-review-name", name);
    dialog.close();
    sortOwn();
    render();
    if (then) then();
    else firstOpen(single() ? page.view : undefined);
  };
  dialog.showModal();
  input.select();
}

function askClass(mode) {
  const dialog = $("ask-class"), input = $("class-name"), list = $("matches");
  let matches = [], chosen = -1;
  const many = asked().length > 1 ? ` for ${plural(asked().length, "image")}` : "";
  $("ask-class-title").textContent = (mode === "new" ? "New class" : "Find a class") + many;
  $("ask-class-hint").textContent = mode === "new" ? "Typed once; then it has a button and a key for everybody." :
    "Type a part of its name.";
  const choose = (name) => {
    dialog.close();
    answer("class", name);
  };
  const look = () => {
    const text = input.value.trim().toLowerCase();
    const all = [...page.facts.known, ...page.fresh];
    matches = mode === "new" && !text ? [] : all.filter((name) => name.toLowerCase().includes(text));
    matches.sort((a, b) => b.toLowerCase().startsWith(text) - a.toLowerCase().startsWith(text));
    matches = matches.slice(0, 50);
    chosen = mode === "new" ? -1 : matches.length ? 0 : -1;
    mark();
  };
  const mark = () => {
    list.replaceChildren(...matches.map((name, i) => {
      const made = node("li", { role: "option", textContent: name, id: `match-${i}`, onclick: () => choose(name) });
      made.setAttribute("aria-selected", i === chosen);
      return made;
    }));
    if (chosen >= 0) {
      input.setAttribute("aria-activedescendant", `match-${chosen}`);
      list.children[chosen].scrollIntoView({ block: "nearest" });
    } else input.removeAttribute("aria-activedescendant");
  };
  input.value = "";
  input.oninput = look;
  input.onkeydown = (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    chosen = Math.max(mode === "new" ? -1 : 0, Math.min(matches.length - 1, chosen + by));
    mark();
  };
  dialog.querySelector("form").onsubmit = (event) => {
    event.preventDefault();
    const text = input.value.trim().replace(/\s+/g, " ");
    if (chosen >= 0) choose(matches[chosen]);
    else if (mode === "new" && text) choose(text);
  };
  dialog.querySelector(".close").onclick = () => dialog.close();
  look();
  dialog.showModal();
  input.focus();
}

async function importFile(event) {
  const file = event.target.files[0];
  $("menu").open = false;
  if (!file) return;
  try {
    const response = await fetch(`/import/${file.name.split(".").pop().toLowerCase()}`, { method: "POST", body: file });
    const done = await response.json();
    if (!response.ok) throw new Error(done.detail);
    page.note = `Imported: ${plural(done.added, "answer")} new, ${done.there} there already` +
      (done.unknown ? `, ${done.unknown} of other images` : "");
    page.failure = "";
    await refresh();
  } catch (error) {
    page.failure = `Not imported: ${error.message}`;
  }
  event.target.value = "";
  render();
}
