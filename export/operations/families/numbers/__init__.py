"""Operations of each number by itself."""
