// The picture of "What ε means": the noisy sum under the answers no (0) and yes (1), with discrete
// Laplace noise of scale 1/ε, and how far a 50:50 guess can move.
(() => {
  const figure = document.getElementById("epsilon-picture");
  if (!figure) return;
  const svg = figure.querySelector("svg");
  const slider = figure.querySelector("input");
  const output = figure.querySelector("output");
  const words = figure.querySelector(".epsilon-words");
  const probability = (k, epsilon) => {
    const decay = Math.exp(-epsilon);
    return ((1 - decay) / (1 + decay)) * decay ** Math.abs(k);
  };
  const rect = (x, y, width, height, colour, opacity) =>
    `<rect x="${x}" y="${y}" width="${width}" height="${height}" fill="${colour}" opacity="${opacity}"/>`;
  const text = (x, y, content, anchor = "middle") =>
    `<text x="${x}" y="${y}" text-anchor="${anchor}" font-size="15" fill="currentColor">${content}</text>`;

  function draw() {
    const epsilon = Math.exp(Number(slider.value));
    output.textContent = epsilon.toFixed(2);
    const top = probability(0, epsilon);
    let drawn = "";
    for (let k = -6; k <= 7; k += 1) {
      const x = 225 + (k - 0.5) * 32;
      for (const [answer, colour, shift] of [[0, "#4477aa", -13], [1, "#ee6677", 0]]) {
        const height = (180 * probability(k - answer, epsilon)) / top;
        drawn += rect(x + shift, 200 - height, 12, height, colour, 0.85);
      }
      if (k % 3 === 0) drawn += text(x, 218, k > 0 ? `+${k}` : k);
    }
    const guess = Math.ceil(1000 / (1 + Math.exp(-epsilon))) / 1000; // rounded up
    drawn += text(8, 20, "blue: you said no", "start") + text(8, 40, "red: you said yes", "start");
    drawn += rect(70, 252, 310, 18, "#bbbbbb", 0.6) + rect(70, 252, 310 * guess, 18, "#228833", 0.9);
    drawn += text(62, 266, "guess", "end") + text(388, 266, `${(100 * guess).toFixed(1)}%`, "start");
    drawn += text(225, 240, "noisy sum, less everybody else's answers");
    svg.innerHTML = drawn;
    const factor = Math.ceil(100 * Math.exp(epsilon)) / 100;
    words.textContent = `ε = ${epsilon.toFixed(2)}: nothing becomes more than ${factor.toFixed(2)} times more or less `
      + `likely. A 50:50 guess about your answer becomes at most ${(100 * guess).toFixed(1)}%.`;
  }
  slider.addEventListener("input", draw);
  draw();
})();
