"""Rules, verdicts, explanations and known findings: the only judge and the only explainer."""
