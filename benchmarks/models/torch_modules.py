"""Small PyTorch modules, untrained: what their authors would train and export. Imported where torch is."""

from __future__ import annotations

import torch
from torch import Tensor, nn

CLASSES = 3
IMAGE = (1, 8, 8)
TOKENS, WORDS, WIDTH = 6, 12, 16


class Block(nn.Module):  # type: ignore[misc]
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + self.shortcut(x))


class TinyResNet(nn.Module):  # type: ignore[misc]
    """A stem and a residual block of equal width: every BatchNorm looks like every other."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.layers = nn.Sequential(Block(8, 8, 2))
        self.head = nn.Linear(8, CLASSES)
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(self.stem(x)).mean((2, 3)))


class TinyTransformer(nn.Module):  # type: ignore[misc]
    """Two layers that `nn.TransformerEncoder` copied from one, a norm that is used twice, and a tied embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.position = nn.Parameter(torch.zeros(1, TOKENS, WIDTH))
        self.norm = nn.LayerNorm(WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.scores = nn.Linear(WIDTH, WORDS, bias=False)
        self.scores.weight = self.embedding.weight
        self.head = nn.Linear(WORDS, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.norm(self.embedding(ids) + self.position)
        x = self.norm(self.encoder(x))
        return self.head(torch.tanh(self.scores(x)).mean(1))
