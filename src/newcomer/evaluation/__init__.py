"""What a model is measured by: ranking the answers of queries. A task takes any scorer and knows no model."""
