"""What the driver of a job does around its epochs, whatever runs them: Spark, or this process."""
