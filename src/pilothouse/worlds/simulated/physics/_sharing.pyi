def solve_rounds(
    private: list[tuple[float, float]],
    bounds: list[float],
    capacities: list[float],
    members: list[list[tuple[int, float, float, int]]],
    pipes: list[bool],
    precision: float,
) -> list[float]: ...
