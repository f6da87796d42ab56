"""The ports of a UR controller, and one for what people in its lab do."""
