def solve_rounds(
    private: list[tuple[float, float]],
    bounds: list[float],
    capacities: list[float],
    members: list[list[tuple[int, float, float, int]]],
    precision: float,
) -> list[float]: ...
