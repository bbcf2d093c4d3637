// SPDX-License-Identifier: Apache-2.0
"use strict";

function start() {
  const page = document.getElementById("page");
  const main = el("main", {}, (D.kind === "fleet" ? new FleetPage() : new MachinePage()).element);
  const told = ["p2pcheck" + (D.version ? " " + D.version : "")];
  if (D.made) told.push(D.made);
  if (D.left.details) main.append(el("p", { class: "note" }, "The page is full: some pairs have their outcome only, and some lists are short. p2pcheck report and p2pcheck why print the rest."));
  clear(page, main, el("footer", {}, el("p", {}, told.join(", "), ". The file loads nothing.")), el("div", { id: "live", class: "visually-hidden", role: "status", "aria-live": "polite" }));
  addEventListener("beforeprint", () => {
    for (const d of document.querySelectorAll(".decides details")) d.open = true;
  });
  document.documentElement.dataset.ready = String(document.getElementsByTagName("*").length);
}

start();
