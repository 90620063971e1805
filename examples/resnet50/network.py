"""ResNet-50, with the names that torchvision gives its weights."""

import torch
from torch import nn

BLOCKS = (3, 4, 6, 3)
EXPANSION = 4
CLASSES = 1000


class Bottleneck(nn.Module):
    """A residual block of three convolutions, with a projection where the shape changes.

    Args:
        channels: of its input.
        inner: of the convolution in the middle; its output has four times as many.
        stride: of the convolution in the middle.
    """

    def __init__(self, channels: int, inner: int, stride: int) -> None:
        super().__init__()
        outer = inner * EXPANSION
        self.conv1 = nn.Conv2d(channels, inner, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, outer, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outer)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or channels != outer:
            projection = nn.Conv2d(channels, outer, 1, stride, bias=False)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(outer))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block's output."""
        path = torch.relu(self.bn1(self.conv1(x)))
        path = torch.relu(self.bn2(self.conv2(path)))
        return torch.relu(self.bn3(self.conv3(path)) + self.downsample(x))


def stage(channels: int, inner: int, blocks: int, stride: int) -> nn.Sequential:
    """Blocks of one size; the first has the stride, and brings the channels to what the others take."""
    first = Bottleneck(channels, inner, stride)
    return nn.Sequential(first, *(Bottleneck(inner * EXPANSION, inner, 1) for _ in range(blocks - 1)))


class ResNet50(nn.Module):
    """`image` FP32 [batch, 3, 224, 224] → scores of classes FP32 [batch, 1000].

    Args:
        width: channels of the first convolution, from which all others follow.
        blocks: how many residual blocks each of the four stages has.
    """

    def __init__(self, width: int = 64, blocks: tuple[int, int, int, int] = BLOCKS) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        self.layer1 = stage(width, width, blocks[0], 1)
        self.layer2 = stage(EXPANSION * width, 2 * width, blocks[1], 2)
        self.layer3 = stage(EXPANSION * 2 * width, 4 * width, blocks[2], 2)
        self.layer4 = stage(EXPANSION * 4 * width, 8 * width, blocks[3], 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(EXPANSION * 8 * width, CLASSES)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """The scores."""
        x = self.maxpool(torch.relu(self.bn1(self.conv1(image))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def random_resnet50(images: torch.Tensor, *, small: bool) -> ResNet50:
    """The network with random weights, always the same, and batch norms that have seen those images.

    Args:
        images: [batch, 3, 224, 224].
        small: with 4 channels and 1 block where it has 64, and 3 to 6.
    """
    torch.manual_seed(0)
    network = ResNet50(4, (1, 1, 1, 1)) if small else ResNet50()
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # the plain mean of what it sees
    with torch.no_grad():
        network.train()(images)
    return network.eval()
