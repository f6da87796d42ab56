"""The ports of a UR controller, and one for the actions of people in its lab."""
