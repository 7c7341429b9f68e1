// How an Allure 3 report is made of Fencepost's results. Allure 3 reads no categories.json.
export default {
  name: "Faults",
  output: "./allure-report",
  historyPath: "./allure-history.jsonl",
  appendHistory: true,
  categories: [
    {
      name: "A promise is violated",
      matchers: { statuses: ["failed"], message: /\bViolation: / },
    },
    {
      name: "The evidence allows no verdict",
      matchers: { statuses: ["broken"], message: /\bInconclusive: / },
    },
    {
      name: "The environment failed",
      matchers: { statuses: ["broken"], message: /\bEnvironmentFailed: / },
    },
  ],
  plugins: { awesome: { options: { groupBy: ["system", "clause"] } } },
};
