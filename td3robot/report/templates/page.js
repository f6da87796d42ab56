"use strict";
// Draws every plot of the page in the colours of its style sheet, and again when these change.
(() => {
  const charts = [...document.querySelectorAll(".chart")];
  const specs = charts.map((chart) => JSON.parse(chart.querySelector("script").textContent));
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const narrow = window.matchMedia("(max-width: 40rem)");
  const touched = window.matchMedia("(hover: none)");
  const styles = getComputedStyle(document.documentElement);
  const paint = (name) => styles.getPropertyValue(name).trim() || name;

  // Colours stand in the plots as names of CSS variables.
  const painted = (value) => {
    if (typeof value === "string") return value.startsWith("--") ? paint(value) : value;
    if (Array.isArray(value)) return value.map(painted);
    if (value === null || typeof value !== "object" || "bdata" in value) return value;
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, painted(inner)]));
  };

  const axis = (given, automargin) => ({
    gridcolor: paint("--grid"), zerolinecolor: paint("--grid"), linecolor: paint("--grid"), automargin,
    ...given, title: { standoff: 8, ...given.title },
  });

  // On a narrow screen each name in the legend takes a line, which the plot must not pay for.
  const legendHeight = (data, given) => {
    const names = data.filter((trace) => trace.showlegend !== false).length;
    return narrow.matches && given.showlegend && names > 2 ? 19 * (names - 1) : 0;
  };

  const layout = (data, given) => {
    const { xaxis, yaxis, ...rest } = painted(given);
    rest.height += legendHeight(data, given);
    return {
      margin: { l: 52, r: 12, t: 8, b: 44 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: paint("--text") },
      hoverlabel: { bgcolor: paint("--card"), bordercolor: paint("--grid"), font: { color: paint("--text") } },
      hovermode: "closest", dragmode: narrow.matches ? false : "zoom",
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 12 } },
      xaxis: axis(xaxis, false), yaxis: axis(yaxis, true), ...rest,
    };
  };

  const draw = () => charts.map((chart, index) => {
    const { data, layout: given } = specs[index];
    return Plotly.react(chart, painted(data), layout(data, given), {
      // Where nothing hovers, plotly shows its bar always, over legend and curves.
      displayModeBar: narrow.matches || touched.matches ? false : "hover", responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
    });
  });

  // Plots of a group share their time axis.
  const together = (chart) => chart.on("plotly_relayout", (change) => {
    const [low, high, free] = ["xaxis.range[0]", "xaxis.range[1]", "xaxis.autorange"].map((key) => change[key]);
    if (chart.dataset.following || (low === undefined && !free)) return;
    for (const other of charts) {
      if (other === chart || other.dataset.group !== chart.dataset.group) continue;
      other.dataset.following = "1";
      Plotly.relayout(other, free ? { "xaxis.autorange": true } : { "xaxis.range": [low, high] })
        .then(() => delete other.dataset.following);
    }
  });

  if (charts.length) {
    Promise.all(draw()).then(() => {
      charts.filter((chart) => chart.dataset.group).forEach(together);
      document.documentElement.dataset.drawn = "yes";
    });
    dark.addEventListener("change", draw);
    narrow.addEventListener("change", draw);
    // Paper is white whatever the screen is.
    const print = (printing) => {
      document.documentElement.toggleAttribute("data-printing", printing);
      draw();
    };
    window.addEventListener("beforeprint", () => print(true));
    window.addEventListener("afterprint", () => print(false));
  }
})();
