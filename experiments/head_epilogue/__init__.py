"""A linear head whose product sums its own softmax, beside the head of tiles that serves today."""
