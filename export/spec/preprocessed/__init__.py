"""Export specs of models whose preprocessing is cut off."""
