// Gives Azurite empty libraries in place of those that it loads and never uses: devhost/azurite.py starts it with this file.
const Module = require("node:module");

const SKIPPED = { applicationinsights: {}, sequelize: { Model: class {} } };
const load = Module._load;

Module._load = (name, ...others) => SKIPPED[name] ?? load(name, ...others);
