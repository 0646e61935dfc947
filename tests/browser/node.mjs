// Runs a function of check.mjs in Node: `node node.mjs NAME`, JSON in, JSON out.
import { readFileSync } from "node:fs";
import * as tacit from "../../clients/js/tacit.js";
import * as check from "./check.mjs";

const found = await check[process.argv[2]](tacit, JSON.parse(readFileSync(0, "utf8")));
process.stdout.write(JSON.stringify(found));
