(() => {
  const rgb = colour => colour.match(/[\d.]+/g).map(Number);
  const luminance = colour => {
    const [r, g, b] = rgb(colour).map(value => value / 255).map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = node => {
    for (; node; node = node.parentElement) {
      const colour = getComputedStyle(node).backgroundColor;
      if ((rgb(colour)[3] ?? 1) === 1) return colour;
    }
  };
  const nodes = [...document.querySelectorAll('#why *, #what-if *')].filter(node =>
    [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim()) && node.getClientRects().length);
  return nodes.length > 10 && nodes.every(node => {
    const [light, dark] = [getComputedStyle(node).color, behind(node)].map(luminance).sort((a, b) => b - a);
    return (light + 0.05) / (dark + 0.05) >= 4.5;
  });
})()
