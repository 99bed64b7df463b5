"""Operations that move, choose, count or add up elements."""
