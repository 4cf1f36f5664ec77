"""Plans as pictures in a page of HTML, such as a notebook."""

from __future__ import annotations

from base64 import b64encode

from holdfast.plan.model import Plan
from holdfast.plan.svg import to_svg


def plan_image(plan: Plan) -> str:
    """Return a plan as an ``img`` element."""
    # NB: as an image, the styles of the picture apply to nothing else in the page
    data = b64encode(to_svg(plan).encode()).decode()
    return f'<img alt="plan" src="data:image/svg+xml;base64,{data}">'
