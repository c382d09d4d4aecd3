"""What tests of networks share."""

import numpy as np
import pytest


@pytest.fixture
def rng():
    """Numbers that are the same in every run."""
    return np.random.default_rng(15)
