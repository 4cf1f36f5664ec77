"""What is sent between subtasks, and between them and the driver: record blocks and messages."""
