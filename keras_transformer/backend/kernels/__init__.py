"""Operations that Keras lacks."""
