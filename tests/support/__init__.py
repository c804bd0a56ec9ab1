"""What several test packages share: builders, test data, small tools. Nothing is defined twice."""
