#pragma once

/// Shows what /policies says, twice a second. Names of scripts become text, never markup.
inline constexpr const char* page = R"html(<!doctype html>
<html lang="en"><meta charset="utf-8"><title>policies</title>
<style>
  body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; color: #222 }
  h2 { margin: 2rem 0 .2rem } .muted { color: #777 } .bad { color: #b00020 }
  table { border-collapse: collapse; margin: .5rem 1.5rem .5rem 0; display: inline-table; vertical-align: top }
  td, th { padding: .15rem .8rem; text-align: left; border-bottom: 1px solid #ddd } .live { background: #e6f4ea }
</style>
<h1>Policies</h1><div id="all" class="muted">loading</div>
<script>
const element = (tag, text, kind) => Object.assign(document.createElement(tag), {textContent: text ?? "", className: kind ?? ""});
const row = (cells, kind) => { const tr = element("tr", "", kind); for (const c of cells) tr.append(element("td", c)); return tr };
function table(head, rows) {
  const t = element("table"), tr = element("tr");
  for (const h of head) tr.append(element("th", h));
  t.append(tr, ...rows);
  return t;
}
function show(policy) {
  const s = policy.statistics, box = element("section");
  box.append(element("h2", policy.name), element("div", policy.path, "muted"));
  if (policy.error) box.append(element("div", policy.error, "bad"));
  box.append(table(["version", "source", "state", "failures"], policy.versions.map(v => row([v.number, v.hash,
    [v.live && "live", v.pinned && "pinned", v.on_trial && "on trial", v.taken_back && "taken back", v.candidate && "candidate"].filter(Boolean).join(", "),
    v.failures], v.live ? "live" : ""))));
  box.append(table(["location", "code", "samples"], s.errors.map(e => row([e.location, e.code, e.samples]))));
  box.append(element("div", `${s.calls} calls, ${s.flagged} of ${s.samples} samples flagged, ${s.repaired} repaired; ` +
    `half of the calls under ${s.p50_us} us, 99 % under ${s.p99_us} us`));
  return box;
}
async function refresh() {
  const all = document.getElementById("all");
  try {
    const state = await (await fetch("policies")).json();
    all.className = "";
    all.replaceChildren(...state.policies.map(show));
    if (state.draining) all.prepend(element("div", "draining", "bad"));
  } catch (error) {
    all.className = "bad";
    all.textContent = "the server does not answer: " + error;
  }
}
refresh();
setInterval(refresh, 500);
</script></html>
)html";
