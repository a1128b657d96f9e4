// H2 as a writer and a reader: Store write|read DIR default|checkpoint-sync
import java.sql.DriverManager;
import java.sql.SQLException;

class Store {
    public static void main(String[] words) throws SQLException {
        var url = "jdbc:h2:" + words[1] + "/items";
        try (var db = DriverManager.getConnection(url); var ask = db.createStatement()) {
            ask.execute("CREATE TABLE IF NOT EXISTS items (number INT PRIMARY KEY)");
            int number = 0;
            var items = ask.executeQuery("SELECT number FROM items ORDER BY number");
            while (items.next()) {
                number = items.getInt(1);
                if (words[0].equals("read")) {
                    System.out.println(number);
                }
            }
            while (words[0].equals("write")) {
                number++;
                ask.execute("INSERT INTO items VALUES (" + number + ")");
                if (words[2].equals("checkpoint-sync")) {
                    ask.execute("CHECKPOINT SYNC");
                }
                System.out.println(number);
            }
        }
    }
}
