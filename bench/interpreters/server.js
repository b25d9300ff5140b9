// One process with a Map of 200,000 objects, for docs/guides/interpreters.md. Start four of them.
const data = new Map();
for (let n = 0; n < 200000; n++) data.set("key " + n, { n, text: "value " + n });
console.log(process.pid, data.size);
setInterval(() => {}, 1000);
