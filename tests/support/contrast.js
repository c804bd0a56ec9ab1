// Texts of a page that stand out from what is behind them by less than 4.5 to 1 (WCAG 2.2, 1.4.3).
(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parsed = (text) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (one) => {
    for (; one; one = one.parentElement) {
      const colour = parsed(getComputedStyle(one).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const one of document.querySelectorAll("body *")) {
    const hasText = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!hasText || !one.checkVisibility() || one.closest(":disabled, .visually-hidden, option")) continue;
    const [low, high] = [light(parsed(getComputedStyle(one).color)), light(behind(one))].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) faint.push(`${one.tagName}.${one.className}: ${ratio.toFixed(2)} ${one.innerText.slice(0, 30)}`);
  }
  return faint;
})();
