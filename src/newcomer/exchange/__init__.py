"""The way back into a graph: facts of newcomers and accepted answers, with who said so and when; no torch."""
