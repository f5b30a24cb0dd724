"use strict";
// The map with the slider: colours every link by what it carried in the frame chosen, and says so in words and a table.
(() => {
  const percent = (thousandths) => `${(thousandths / 10).toFixed(0)} %`;

  function network(box) {
    const data = JSON.parse(box.querySelector("script[type='application/json']").textContent);
    const form = box.querySelector("form"), slider = box.querySelector("input[type=range]");
    const play = box.querySelector(".play"), said = box.querySelector(".said"), rows = box.querySelector("tbody");
    const lanes = [...box.querySelectorAll(".lane")], trees = [...box.querySelectorAll(".tree")];
    const strip = box.querySelector(".strip");
    let timer = 0;

    const arm = () => data.arms.find((one) => one.name === form.elements.arm.value);
    const measure = () => form.elements.measure.value;
    const frames = () => arm().edges.length - 1;

    function show() {
      const one = arm(), key = measure(), at = Number(slider.value), values = one[key];
      for (const lane of lanes) {
        const link = lane.dataset.link, value = values[link] ? values[link][at] : 0;
        lane.style.setProperty("--level", (value / 1000).toFixed(3));
        lane.classList.toggle("unused", !(link in values));
        lane.firstElementChild.textContent = `${link}: ${percent(value)}`;
      }
      const busiest = Object.keys(one.used)
        .sort((a, b) => values[b][at] - values[a][at] || one.used[b][at] - one.used[a][at]).slice(0, 8);
      rows.replaceChildren(...busiest.map((link) => {
        const row = document.createElement("tr"), head = document.createElement("th");
        head.scope = "row";
        head.textContent = link;
        row.append(head, ...data.measures.map(([name]) => {
          const cell = document.createElement("td");
          cell.textContent = percent(one[name][link][at]);
          return cell;
        }));
        return row;
      }));
      const begin = one.edges[at], end = one.edges[at + 1];
      const span = one.spans.find(([, from, to]) => from < end && to > begin);
      const label = data.measures.find(([name]) => name === key)[1];
      const text = `${(begin / 1000).toFixed(2)} to ${(end / 1000).toFixed(2)} s, ${span ? span[0] : "between"}: `
        + `${busiest[0]} has the highest ${label}, ${percent(values[busiest[0]][at])}`;
      slider.setAttribute("aria-valuetext", text);
      said.textContent = text;
      const total = one.edges[frames()] - one.edges[0];
      const x = 1000 * ((begin + end) / 2 - one.edges[0]) / total;
      for (const side of ["x1", "x2"]) strip.querySelector(".now").setAttribute(side, x);
    }

    function over() {  // the highest value of any link in each frame, above the slider
      const one = arm(), values = Object.values(one[measure()]), first = one.edges[0];
      const x = (at) => (1000 * (at - first) / (one.edges[frames()] - first)).toFixed(1);
      let path = "M0 40";
      for (let at = 0; at < frames(); at += 1) {
        const y = (40 - 38 * Math.max(...values.map((of) => of[at])) / 1000).toFixed(1);
        path += `L${x(one.edges[at])} ${y}L${x(one.edges[at + 1])} ${y}`;
      }
      strip.querySelector(".over").setAttribute("d", `${path}L1000 40z`);
      strip.querySelector(".spans").replaceChildren(...one.spans.map(([, from, to]) => {
        const rect = document.createElementNS(strip.namespaceURI, "rect");
        const left = Math.max(0, x(from)), right = Math.min(1000, x(to));
        for (const [name, value] of Object.entries({ x: left, y: 0, width: right - left, height: 40 })) {
          rect.setAttribute(name, value);
        }
        return rect;
      }));
      box.dataset.measure = measure();
    }

    function tree() {
      for (const one of trees) {
        one.toggleAttribute("hidden", one.dataset.arm !== form.elements.arm.value
          || one.dataset.name !== form.elements.tree.value);
      }
    }

    function choose() {  // another arm: begin where its network is busiest
      const used = Object.values(arm().used);
      const load = Array.from({ length: frames() }, (_, at) => used.reduce((sum, of) => sum + of[at], 0));
      slider.max = frames() - 1;
      slider.value = load.indexOf(Math.max(...load));
      if (form.elements.tree) {
        const own = trees.filter((one) => one.dataset.arm === form.elements.arm.value);
        form.elements.tree.replaceChildren(new Option("none", ""),
          ...own.map((one) => new Option(one.dataset.name, one.dataset.name)));
        form.elements.tree.value = own.length ? own[0].dataset.name : "";
        tree();
      }
      over();
      show();
    }

    function stop() {
      clearInterval(timer);
      timer = 0;
      play.textContent = "Play";
      play.setAttribute("aria-pressed", "false");
      said.setAttribute("aria-live", "polite");
    }

    play.addEventListener("click", () => {
      if (timer) return stop();
      if (Number(slider.value) >= Number(slider.max)) slider.value = 0;
      play.textContent = "Pause";
      play.setAttribute("aria-pressed", "true");
      said.setAttribute("aria-live", "off");
      timer = setInterval(() => {
        slider.value = Number(slider.value) + 1;
        show();
        if (Number(slider.value) >= Number(slider.max)) stop();
      }, 150);
      return undefined;
    });
    slider.addEventListener("input", show);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("change", (event) => {
      if (event.target.name === "arm") choose();
      else if (event.target.name === "tree") tree();
      else { over(); show(); }
    });
    choose();
  }

  document.querySelectorAll("[data-network]").forEach(network);
  const folded = [...document.querySelectorAll("details")];
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = folded.filter((one) => !one.open);
    opened.forEach((one) => { one.open = true; });
  });
  addEventListener("afterprint", () => opened.forEach((one) => { one.open = false; }));
})();
