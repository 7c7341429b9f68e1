"""What several families of promises share: keys, facts that rules fold, and shapes of clusters."""
