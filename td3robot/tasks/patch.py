"""What tasks with objects on a patch of the table ask of it."""

from td3robot.robots.interface import ArmModel, Jaw

Corner = tuple[float, float]


def require_room(low: Corner, high: Corner) -> None:
    """Require that a patch (x, y) [m] is not empty.

    Raises:
        ValueError: Naming the axis.
    """
    for axis, first, last in zip("xy", low, high, strict=True):
        if not first < last:
            raise ValueError(f"the patch is empty along {axis}: patch_low {first} m is not below patch_high {last} m")


def require_on_table(low: Corner, high: Corner, arm: ArmModel) -> None:
    """Require that a patch (x, y) [m] lies on an arm's table.

    Raises:
        ValueError: Naming the axis.
    """
    table = arm.regions["table"]
    for axis, first, last, *edges in zip("xy", low, high, table.low, table.high, strict=True):
        if first < edges[0] or last > edges[1]:
            raise ValueError(
                f"the patch goes from {axis} {first:g} to {last:g} m, and the table only from {edges[0]:g} to "
                f"{edges[1]:g} m: objects would fall off its edge"
            )


def require_start_above(start_m: float, height_m: float, jaw: Jaw) -> None:
    """Require that a tool that starts so far above the table has its fingers above an object of a height.

    Raises:
        ValueError: Naming the least height of the start.
    """
    if start_m < height_m + jaw.fingertips_m:
        raise ValueError(
            f"the tool starts from {start_m:g} m above the table, with its fingers inside an object of {height_m:g} m; "
            f"raise start_height_m to {height_m + jaw.fingertips_m:g} m or more"
        )
