"""Commands that run several programs in turns, round by round, and print their ratios."""
