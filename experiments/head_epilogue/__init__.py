"""A linear head whose product sums its own softmax, beside the head of tiles."""

from experiments.head_epilogue.card import TILES, Card, Plan, Tiles, choose
from experiments.head_epilogue.head import gradients, statistics, with_gradients

__all__ = ["TILES", "Card", "Plan", "Tiles", "choose", "gradients", "statistics", "with_gradients"]
